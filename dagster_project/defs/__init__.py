"""What this project declares: a folder for each dataset, corpus or group of tables of its own."""
