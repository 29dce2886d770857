"""Mutation run over parsers, rates and rules (`scripts/mutation`): do the tests notice when the code is wrong?

Own, and small, because neither usual tool fits: mutmut leaves every decorated function out, and each rule (`@rule`) and
each figure (`@property`) is one; cosmic-ray rewrites the file on disk, and starts pytest anew for each mutant. Here a
mutant exists only in the memory of a forked child, of a process that has the libraries loaded.
"""
