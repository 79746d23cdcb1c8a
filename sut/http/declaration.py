"""The file of `--api-declaration`: facts that the operator of a server declares."""

from pathlib import Path

from pydantic import ValidationError

from runs.errors import InputError
from runs.files.yaml_file import read_yaml
from runs.record.engines.servers import ServerDeclaration


def read_declaration(path: Path) -> ServerDeclaration:
    """Read `--api-declaration`; raise InputError if the file is not YAML with the fields of `ServerDeclaration`."""
    fix = "see the example configs/endpoint-declaration.yaml"
    try:
        return ServerDeclaration.model_validate(read_yaml(path, "--api-declaration"))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}" for problem in error.errors()
        ]
        raise InputError(f"--api-declaration {path}: {'; '.join(problems)}", fix) from error
