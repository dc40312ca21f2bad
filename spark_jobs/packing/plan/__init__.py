"""The plan decides which documents share a window, by best-fit decreasing on the histogram of lengths."""
