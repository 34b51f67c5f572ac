"""Asks protoc, from the package grpcio-tools, about schemas: one JSON object per line in, one out.

In: `{"text": ..., "references": {path: text}}`. Out: `{"descriptor": ...}`, a FileDescriptorProto in base64, or
`{"error": ...}`. The arguments are folders with more files that can be imported.
"""

import base64
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2
from grpc_tools import protoc


def main() -> None:
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    # protoc writes its complaints to standard error, past Python; the answers go to what was standard output.
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        os.dup2(complaints.fileno(), 1)
        os.dup2(complaints.fileno(), 2)
        for line in sys.stdin:
            question = json.loads(line)
            root = Path(tempfile.mkdtemp())
            for path, text in {**question.get("references", {}), "main.proto": question["text"]}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(text.encode())
            complaints.seek(0)
            complaints.truncate()
            folders = [f"-I{folder}" for folder in (root, *sys.argv[1:], well_known)]
            output = root / "descriptors"
            code = protoc.main(
                ["protoc", *folders, f"--descriptor_set_out={output}", "--retain_options", str(root / "main.proto")]
            )
            if code == 0:
                files = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
                answer = {"descriptor": base64.b64encode(files.file[-1].SerializeToString()).decode()}
            else:
                complaints.seek(0)
                lines = [text for text in complaints.read().replace(f"{root}/", "").splitlines() if ".proto" in text]
                answer = {"error": lines[-1] if lines else "refused"}
            shutil.rmtree(root)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
