"""The last stage of the NPU back end: turns loop nests into instructions, assigns scratchpad rows and semaphores.

Nothing here depends on the kind of a layer.
"""
