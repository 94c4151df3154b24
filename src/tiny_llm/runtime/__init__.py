"""The native extension, the devices, and the versions that are installed."""
