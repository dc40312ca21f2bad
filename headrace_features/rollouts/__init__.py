"""Take rollouts of reinforcement learning into live packed tables: what is admitted, the tables, the service."""
