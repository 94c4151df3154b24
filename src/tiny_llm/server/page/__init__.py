"""The page at `/`: HTML, style and ES modules, sent as they are; `files.py` lists and sends them."""
