"""onnxruntime-web: the WebAssembly build, in Node."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np

SCRIPT = """
const ort = require("onnxruntime-web"), fs = require("fs");
ort.env.wasm.numThreads = 1;
(async () => {
  const request = JSON.parse(fs.readFileSync(process.argv[1])), feeds = {};
  const arrays = { float32: Float32Array, int64: BigInt64Array };
  for (const input of request.inputs) {
    const bytes = fs.readFileSync(input.file);
    const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    feeds[input.name] = new ort.Tensor(input.type, new arrays[input.type](copy), input.shape);
  }
  const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync(request.model)));
  const results = await session.run(feeds), shapes = [];
  for (const [number, name] of session.outputNames.entries()) {
    const result = results[name];
    const data = Buffer.from(result.data.buffer, result.data.byteOffset, result.data.byteLength);
    fs.writeFileSync(request.output + number, data);
    shapes.push({ type: result.type, shape: result.dims });
  }
  fs.writeFileSync(request.output + ".json", JSON.stringify(shapes));
})().catch((error) => { console.error(String(error)); process.exit(1); });
"""


def run(job) -> list[np.ndarray]:
    request = {"model": job.path, "output": os.path.join(job.folder, "output"), "inputs": []}
    for number, (name, value) in enumerate(job.feed.items()):
        file = os.path.join(job.folder, str(number))
        value.tofile(file)
        described = {"name": name, "file": file, "type": str(value.dtype), "shape": list(value.shape)}
        request["inputs"].append(described)
    with open(os.path.join(job.folder, "request.json"), "w", encoding="utf-8") as stream:
        json.dump(request, stream)
    environment = {**os.environ, "NODE_PATH": os.environ["NODE_MODULES"]}
    command = ["node", "-e", SCRIPT, os.path.join(job.folder, "request.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    with open(request["output"] + ".json", encoding="utf-8") as stream:
        shapes = json.load(stream)
    return [
        np.fromfile(f"{request['output']}{number}", output["type"]).reshape(output["shape"])
        for number, output in enumerate(shapes)
    ]
