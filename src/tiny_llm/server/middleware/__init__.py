"""What every request passes before its route: its id and log line, host, origin, key, body."""
