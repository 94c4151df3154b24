"""The application of `tiny_llm.deploy` on a Ray cluster of this process, until its input ends.

`python -m benches.contestants.http.ray_program CPUS PORT ARGUMENTS`: Ray grants CPUS, however many there are.
"""

import json
import sys

import ray
from ray import serve

from tiny_llm.deploy.ray import RayArguments, app

cpus, port, arguments = sys.argv[1:]
ray.init(num_cpus=int(cpus), include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
serve.run(app(RayArguments.model_validate(json.loads(arguments))))
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
