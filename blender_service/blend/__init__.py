"""What a blend is: requests, their validation, the stored config, its description."""
