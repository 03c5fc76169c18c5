"""Folders with the weights of a user's own module: laid out like a model folder, and read with the module's help.

The architecture is the user's code, which Regard neither saves nor imports. What is saved is the module's `state_dict`,
the tokenizer, the special ids, and a note that says how to load them.
"""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.data.tokenizer import Tokenizer
from regard.errors import RegardError
from regard.storage.model_folder import (
    OWN_MODULE_TYPE,
    WEIGHTS_FILE,
    check_manifest,
    check_tensors,
    load_tokenizer,
    read_config,
    special_ids,
    write_parts,
)
from regard.storage.weights import SAFETENSORS_DTYPES, open_weights
from regard.untrusted_files import read_json

NOTE_FILE = "README.md"
NOTE = """# Weights of {module}

This folder is not a Regard model: the architecture is your own code, which is not saved. `model.safetensors` is the
`state_dict` of the module, and `tokenizer.json` the tokenizer it was trained with.

To translate, generate or classify with it, create the module with the same sizes and load both:

```python
import regard

model = regard.load("FOLDER", network={module}(...))
```

Or load the weights only:

```python
from safetensors.torch import load_file

module = {module}(...)
module.load_state_dict(load_file("FOLDER/model.safetensors"))
```

To resume the run, pass the module to `regard.train(..., network=..., resume=True)`, or repeat the command with
`--resume`.
"""

OwnModuleParts = tuple[dict[str, Tensor], ModelConfig, Tokenizer | None, SpecialIds, dict[str, Any]]
"""The state of the module, the config that it stands for, the tokenizer, the special ids and the metadata."""


def write_own_module_files(
    folder: Path,
    module: str,
    config: ModelConfig,
    state: dict[str, Tensor],
    tokenizer: Tokenizer | None,
    special: SpecialIds,
    about: dict[str, Any],
    dtype: str | None = None,
) -> None:
    """Write the files, without a manifest, into an existing folder. `module` is the name of the module's class."""
    about = about | {"module": module}
    write_parts(folder, OWN_MODULE_TYPE, config, state, tokenizer, special, about, dtype)
    (folder / NOTE_FILE).write_text(NOTE.format(module=module), encoding="utf-8")


def is_own_module_folder(folder: Path) -> bool:
    """Whether a folder holds the weights of a user's module."""
    path = folder / "config.json"
    return path.is_file() and read_json(path).get("model_type") == OWN_MODULE_TYPE


def read_own_module_folder(folder: Path, state: dict[str, Tensor]) -> OwnModuleParts:
    """Read a folder for a module with this `state`; a RegardError if its names or shapes differ from the file's."""
    check_manifest(folder)
    model_type, config, about = read_config(folder)
    if model_type != OWN_MODULE_TYPE:
        raise RegardError(f"{folder} holds a model of Regard's: load it without a network of your own")
    try:
        check_tensors(
            open_weights(folder), {name: tuple(tensor.shape) for name, tensor in state.items()}, SAFETENSORS_DTYPES
        )
    except RegardError as error:
        raise RegardError(
            f"your module is not the {about.get('module')} that was trained, or has other sizes: {error}"
        ) from None
    special = special_ids(read_json(folder / "generation_config.json"), config, folder)
    return load_file(folder / WEIGHTS_FILE), config, load_tokenizer(folder), special, about
