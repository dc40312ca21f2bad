"""Questions about a lake: what is in it, its state, its cost, the health of its machine, exports of its windows."""
