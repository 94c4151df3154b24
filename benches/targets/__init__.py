"""What each row is expected to reach. Targets are ratios within one run."""
