"""An in-toto statement with SLSA provenance: from which bytes, how, and by what an output was made.

It has no times and no machine, so the same conversion gives the same bytes, which
``convert verify --reproduce`` checks. It is not signed: its maker signs it.
Spec: https://github.com/in-toto/attestation/blob/v1.1.0/spec/v1/statement.md,
https://slsa.dev/spec/v1.0/provenance
"""

from converter.attestation.conversion import AttestedConversion
from converter.attestation.files import AttestedFile
from converter.environment import describe_environment
from converter.version import VERSION
from formats.core.bundle import JSON

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:model-convert:conversion:v1"
BUILDER = "urn:model-convert"


def make_statement(made: AttestedConversion) -> dict[str, JSON]:
    """Return the statement on the files of an output."""
    environment = describe_environment()
    packages = environment["packages"]
    return {
        "_type": STATEMENT,
        "subject": [_describe(file) for file in made.outputs],
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"source": made.source, "options": made.parameters},
                "internalParameters": {},
                "resolvedDependencies": [_describe(file) for file in made.inputs],
            },
            "runDetails": {
                "builder": {
                    "id": BUILDER,
                    "version": {
                        "model-convert": VERSION,
                        "python": environment["python"],
                        **(packages if isinstance(packages, dict) else {}),
                    },
                },
                "metadata": {},
            },
        },
    }


def _describe(file: AttestedFile) -> dict[str, JSON]:
    """Return a file as in-toto's ResourceDescriptor."""
    return {"name": file.name, "digest": file.digest()}
