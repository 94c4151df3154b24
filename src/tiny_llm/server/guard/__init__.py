"""What every request passes before its route: its id and log line, the host, the key, the body."""
