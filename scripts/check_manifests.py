#!/usr/bin/env python3
"""Checks manifests of Kubernetes against custom resource definitions; needs PyYAML and jsonschema.

usage: check_manifests.py FOLDER_OF_DEFINITIONS MANIFEST...

Fields that a definition does not have are reported, because Kubernetes would drop them silently.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml


def closed(schema: Any) -> Any:
    """Returns the schema with an error for every field that it does not list."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(part) for name, part in schema.items()}
    if "x-kubernetes-int-or-string" in made:
        return {"type": ["integer", "string"]}
    # Schemas without a type stay open: rules such as anyOf list only some fields of the schema
    # around them.
    if made.get("type") == "object" and isinstance(made.get("properties"), dict):
        opened = "additionalProperties" in made or "x-kubernetes-preserve-unknown-fields" in made
        return made if opened else made | {"additionalProperties": False}
    return made


def definitions(folder: Path) -> dict[tuple[str, str], Any]:
    """Returns the schemas in a folder by API version and kind."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in yaml.safe_load_all(path.read_text()):
            for version in crd["spec"]["versions"]:
                name = f"{crd['spec']['group']}/{version['name']}"
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                found[name, crd["spec"]["names"]["kind"]] = schema
    return found


def faults(manifest: Path, known: dict[tuple[str, str], Any]) -> list[str]:
    """Returns the faults of a file of manifests."""
    found = []
    for resource in yaml.safe_load_all(manifest.read_text()):
        name = (resource["apiVersion"], resource["kind"])
        if name not in known:
            found.append(f"{manifest}: no definition of {name[1]} in {name[0]}")
            continue
        for error in jsonschema.Draft202012Validator(known[name]).iter_errors(resource):
            place = ".".join(map(str, error.absolute_path))
            found.append(f"{manifest}: {name[1]}: {place}: {error.message[:200]}")
    return found


def main(arguments: list[str]) -> int:
    """Prints the faults; returns 1 if there are any."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    known = definitions(Path(arguments[0]))
    found = [fault for name in arguments[1:] for fault in faults(Path(name), known)]
    print("\n".join(found) or f"{len(arguments) - 1} files of manifests match their definitions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
