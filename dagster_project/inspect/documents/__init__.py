"""Questions about one document, window or token: where it is from, what was found about it, what is similar."""
