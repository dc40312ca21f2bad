"""The public summary of training content: counted, stated, or listed as missing."""
