"""The server of `pdm run book`: pages, reload after a change, and the attention of a reader's question."""
