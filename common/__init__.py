"""The ground layer of all packages: errors, files kept between runs, builds of C++, allocation of memory."""
