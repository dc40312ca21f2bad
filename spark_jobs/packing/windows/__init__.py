"""Cut and assemble windows as planned; digests prove that no token was lost."""
