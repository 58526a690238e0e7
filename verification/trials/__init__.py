"""Trials: runs on an RTL that may be faulty, each of which shows whether it computes and behaves as it must."""
