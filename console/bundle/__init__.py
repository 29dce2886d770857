"""A bundle: what a colleague or a vendor needs of this box and of the last minutes, in one file, less secrets."""
