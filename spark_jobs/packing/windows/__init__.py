"""Windows are cut and assembled as planned, and digests prove that no token was lost."""
