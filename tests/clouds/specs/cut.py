#!/usr/bin/env python3
"""cut.py DESCRIPTION OUT PATH...: the paths of an OpenAPI description that are named, with all that they refer to, as JSON."""

import json
import sys


def read(name):
    text = open(name).read()
    if name.endswith((".yaml", ".yml")):
        import yaml

        # Dates stay texts, so that the result is JSON.
        loader = type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": {
            k: [(tag, r) for tag, r in v if tag != "tag:yaml.org,2002:timestamp"] for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}})
        return json.loads(json.dumps(yaml.load(text, loader)))
    return json.loads(text)


def references(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            elif key == "mapping":
                yield from inner.values()
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def main():
    whole = read(sys.argv[1])
    paths = {path: whole["paths"][path] for path in sys.argv[3:]}
    components, open_ = {}, list(references(paths))
    while open_:
        _, _, kind, name = open_.pop().split("/")
        if name not in components.setdefault(kind, {}):
            components[kind][name] = whole["components"][kind][name]
            open_.extend(references(components[kind][name]))
    cut = {"openapi": whole["openapi"], "info": whole["info"], "paths": paths, "components": components}
    with open(sys.argv[2], "w") as out:
        json.dump(cut, out, indent=1, ensure_ascii=False)
        out.write("\n")


main()
