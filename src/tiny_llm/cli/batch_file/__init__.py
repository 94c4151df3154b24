"""`tiny-llm batch` with a file of OpenAI's batch API: on this machine, or by Ray on a cluster."""
