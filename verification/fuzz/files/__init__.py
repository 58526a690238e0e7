"""Mutated files of every kind that Tilewright reads: each must work, or be refused with one line.

    python -m verification.fuzz.files --count 100000               all kinds, in several processes
    python -m verification.fuzz.files --kinds npz,tflite --seed 4711 --count 1

`mutations` changes bytes, and numbers in the structure of a file; `kinds` has valid files to begin with and what reads
each kind; `attempt` judges one case. A failure prints the command that replays it.
"""
