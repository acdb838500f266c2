"""Small wrong versions of a function, made from its source.

Of an operation, which returns (y, backward), only what the backward alone needs is got wrong: the backward itself, the lines
of the forward that y does not hang on, and the functions of the same file that nothing else calls. So the forward, which is
what a backward is measured by, stays as it was.

A mutant differs in one place of the parsed source. It is compiled without the rest of the file, in a copy of the function's
own globals, so that nothing that exists is touched.
"""

from gradcheck.mutants.source import LEFT_OUT, Mutant, Source

__all__ = ["LEFT_OUT", "Mutant", "Source"]
