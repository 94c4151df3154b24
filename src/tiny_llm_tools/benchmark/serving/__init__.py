"""Load for a server that speaks OpenAI's interface: requests, arrivals, answers."""
