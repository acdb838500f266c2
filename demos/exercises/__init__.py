"""Every operation with its backward left out: write it in a file of your own, and have it graded.

Without a name it lists the exercises. With one it writes the file, and once that is there, says whether it is right, and if
not, where it is wrong.
"""

from demos.exercises.command import main

__all__ = ["main"]
