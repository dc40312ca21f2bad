"""Which documents share a window: best-fit decreasing on the histogram of lengths."""
