"""An HTTP server with OpenAI's interface. It needs the extra `serve`: `pip install 'tiny-llm[serve]'`."""
