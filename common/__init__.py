"""What every package stands on: errors, files kept between runs, builds of C++, places in memory."""
