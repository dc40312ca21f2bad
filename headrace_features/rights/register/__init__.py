"""The opt-out register: its rows and their hash tree, what opt-outs are about, lists that are read into it."""
