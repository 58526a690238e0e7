"""In which order and from where the layers of a step run: residency, fusion, search; knows no kind of layer."""
