"""What runs on a user's machine: the `cascade` command, the local server and the step timing tools."""
