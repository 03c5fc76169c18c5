"""Model folders: saving and loading round-trip, any damage is detected and named, and a failure leaves no files."""

import errno
import hashlib
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.atomic_files import new_folder
from regard.config import SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.model.transformer import build
from regard.storage import model_folder as store
from regard.storage.weights import open_weights, weights_digest, write_weights
from tests.support.oracles import small

TOKENIZER = train_tokenizer(["Le chat noir dort.", "The black cat sleeps."], 259)
SPECIAL = SpecialIds(
    end=(TOKENIZER.end, 5), start=TOKENIZER.pad, separator=TOKENIZER.separator, suppressed=(TOKENIZER.pad, 7)
)
ABOUT: dict[str, Any] = {"languages": ["fr", "en"], "scores": {"bleu": 41.5}, "origin": "œuvre"}
NAMES = {
    "config.json",
    "generation_config.json",
    "manifest.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def model(**changes: Any) -> Model:
    return Model(build(small(vocab_size=TOKENIZER.size, **changes)), TOKENIZER, SPECIAL, ABOUT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model(d_model=4, heads=1, layers=1, d_ff=4).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder-decoder"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_loads_unchanged(tmp_path: Path, kind: str, tied: bool) -> None:
    stored = model(kind=kind, tied=tied, norm="pre", output_bias=True)
    stored.save(tmp_path / "deep" / "model")
    assert {file.name for file in (tmp_path / "deep" / "model").iterdir()} == NAMES
    loaded = Model.from_folder(tmp_path / "deep" / "model")
    assert loaded.config == stored.config
    assert (loaded.special, loaded.about) == (SPECIAL, ABOUT)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.digest == TOKENIZER.digest
    assert loaded.tokenizer.settings == TOKENIZER.settings
    wanted, found = stored.network.state_dict(), loaded.network.state_dict()
    assert list(found) == list(wanted)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not loaded.network.training
    assert all(parameter.requires_grad for parameter in loaded.network.parameters())


def test_saving_a_loaded_model_gives_the_same_files(folder: Path, tmp_path: Path) -> None:
    Model.from_folder(folder).save(tmp_path / "again")
    assert all((folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in NAMES)


def test_a_model_without_tokenizer_or_special_ids(tmp_path: Path) -> None:
    Model(build(small(kind="decoder"))).save(tmp_path / "model")
    loaded = Model.from_folder(tmp_path / "model")
    assert loaded.tokenizer is None
    assert (loaded.special, loaded.about) == (SpecialIds(), {})


def check_detected(folder: Path, name: str) -> None:
    """Check that loading fails with a message that names the damaged file, or the manifest."""
    with pytest.raises(ValueError, match=r".") as caught:
        Model.from_folder(folder)
    said = str(caught.value)
    if name == store.MANIFEST_FILE:
        assert any(str(folder / each) in said for each in NAMES) or "is missing, but the manifest lists it" in said
    else:
        assert str(folder / name) in said


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_flipped_bit_is_detected(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    pick = random.Random(name)
    places = (
        range(len(whole))
        if name == store.MANIFEST_FILE
        else [0, len(whole) - 1, *pick.choices(range(len(whole)), k=60)]
    )
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << pick.randrange(8)
        (folder / name).write_bytes(flipped)
        check_detected(folder, name)
    (folder / name).write_bytes(whole)
    Model.from_folder(folder)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_truncation_is_detected(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    lengths = {0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 2}  # JSON is still complete without its last line feed
    lengths |= set() if name == store.MANIFEST_FILE else {len(whole) - 1}
    for length in sorted(lengths | set(random.Random(name).choices(range(len(whole) - 1), k=30))):
        (folder / name).write_bytes(whole[:length])
        check_detected(folder, name)
    (folder / name).write_bytes(whole + b" ")
    if name != store.MANIFEST_FILE:
        check_detected(folder, name)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_missing_file_is_detected(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ValueError, match="is missing") as caught:
        Model.from_folder(folder)
    assert str(folder / name) in str(caught.value)


def test_swapped_files_are_detected(folder: Path) -> None:
    a, b = folder / "generation_config.json", folder / "tokenizer_config.json"
    contents = a.read_bytes(), b.read_bytes()
    b.write_bytes(contents[0])
    a.write_bytes(contents[1])
    check_detected(folder, "generation_config.json")


def test_a_tokenizer_missing_from_the_manifest_is_not_read(tmp_path: Path, folder: Path) -> None:
    Model(build(small(kind="decoder"))).save(tmp_path / "bare")
    shutil.copy(folder / "tokenizer.json", tmp_path / "bare")
    with pytest.raises(ValueError, match=r"manifest\.json does not list tokenizer\.json"):
        Model.from_folder(tmp_path / "bare")


@pytest.mark.parametrize("name", ["special_tokens_map.json", "chat_template.jinja"])
def test_tokenizer_settings_missing_from_the_manifest_are_not_read(folder: Path, name: str) -> None:
    (folder / name).write_text("{}")
    with pytest.raises(ValueError, match=rf"manifest\.json does not list {name}"):
        Model.from_folder(folder)


def test_files_of_a_run_may_be_in_the_same_folder(folder: Path) -> None:
    (folder / "report.md").write_text("# How it came about")
    (folder / "checkpoints").mkdir()
    assert Model.from_folder(folder).about == ABOUT


@pytest.mark.parametrize(("name", "newer", "readable"), [("config.json", 3, "1 to 2"), ("manifest.json", 2, "1")])
def test_a_newer_format_asks_to_upgrade(folder: Path, name: str, newer: int, readable: str) -> None:
    told = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(told | {"format": newer}))
    if name != store.MANIFEST_FILE:
        store.write_manifest(folder)
    with pytest.raises(ValueError, match=rf"{name} has format {newer}, but this Regard reads {readable}: upgrade"):
        Model.from_folder(folder)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_saved_folders_are_readable_for_any_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        model().save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o755
    modes = {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in (tmp_path / "model").iterdir()}
    assert modes == dict.fromkeys(NAMES, "0o644")


@pytest.mark.parametrize("there", ["a model", "a file", "another folder"])
def test_existing_folders_are_not_overwritten(tmp_path: Path, there: str) -> None:
    target = tmp_path / "model"
    if there == "a model":
        model().save(target)
    elif there == "a file":
        target.write_text("precious")
    else:
        target.mkdir()
        (target / "precious").write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="already exists and is not"):
        model(d_ff=8).save(target)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    model().save(tmp_path / "model")
    assert Model.from_folder(tmp_path / "model").about == ABOUT


@pytest.mark.parametrize("way", ["its name", "a link", "a dot", "a link to nothing"])
def test_an_empty_folder_is_filled_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A process whose working directory it is, or a mount point, sees the new files; a link stays a link."""
    place = tmp_path / "model"
    link = tmp_path / "link"
    link.symlink_to(place)
    if way != "a link to nothing":
        place.mkdir()
        before = place.stat().st_ino
        monkeypatch.chdir(place)
    model().save({"its name": place, "a dot": Path()}.get(way, link))
    assert {file.name for file in place.iterdir()} == NAMES
    assert link.is_symlink()
    assert Model.from_folder(place).about == ABOUT
    if way != "a link to nothing":
        assert place.stat().st_ino == before
        assert {file.name for file in Path().iterdir()} == NAMES


def test_the_manifest_is_written_last_into_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, moved = os.rename, []

    def note(source: Any, target: Any) -> None:
        moved.append(Path(target).name)
        rename(source, target)

    monkeypatch.setattr(os, "rename", note)
    (tmp_path / "model").mkdir()
    model().save(tmp_path / "model")
    assert set(moved) == NAMES
    assert moved[-2:] == ["config.json", "manifest.json"]


@pytest.mark.parametrize("after", range(len(NAMES)))
def test_an_empty_folder_that_cannot_be_filled_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    rename = os.rename
    moved: list[Any] = []

    def fail_later(source: Any, target: Any) -> None:
        if len(moved) == after:
            full_disk()
        moved.append(target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_later)
    (tmp_path / "model").mkdir()
    with pytest.raises(OSError, match="No space left"):
        model().save(tmp_path / "model")
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_a_folder_created_meanwhile_is_kept_or_reported(tmp_path: Path, there: bool, keep: bool) -> None:
    """Two runs that prepare the same text may each keep the other's folder."""
    place = tmp_path / "folder"
    if there:
        place.mkdir()
    told = nullcontext() if keep else pytest.raises(ValueError, match="created by another process in the meantime")
    with told, new_folder(place, keep_existing=keep) as temporary:
        (temporary / "ours").write_text("ours")
        place.mkdir(exist_ok=True)
        (place / "theirs").write_text("theirs")
    assert contents(tmp_path) == {"folder/theirs": b"theirs"}


def test_a_failed_rename_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        (tmp_path / "folder").mkdir()
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(OSError, match="busy"), new_folder(tmp_path / "folder", keep_existing=True):
        pass


def test_a_pipe_is_not_overwritten(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="already exists"):
        model().save(tmp_path / "pipe")


def test_special_ids_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    stored = model()
    stored.special = SpecialIds(end=(0,))
    with pytest.raises(ValueError, match="needs an id that starts its targets"):
        stored.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_tensors_that_share_memory_are_written_separately(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(4, 3)
    held = {"whole": whole, "part": whole[:2], "turned": whole.T, "again": whole}
    write_weights(tmp_path / "model.safetensors", held)
    found = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], held[name]) for name in held)


def test_a_type_that_cannot_represent_the_weights_is_rejected(tmp_path: Path) -> None:
    stored = model()
    large = stored.network.get_parameter("encoder.layers.0.feed_forward.up.weight")
    with torch.no_grad():
        large[0, 0], large[0, 1] = -1e6, 70_000.0
    name = r"encoder\.layers\.0\.feed_forward\.up\.weight"
    with pytest.raises(
        ValueError, match=rf"^{name} contains 1e\+06, but the maximum of float16 is 6\.55e\+04: choose another dtype"
    ):
        stored.save(tmp_path / "half", "float16")
    assert list(tmp_path.iterdir()) == []
    stored.save(tmp_path / "brain", "bfloat16")
    with torch.no_grad():
        large[0, 0] = 3.4e38
    with pytest.raises(ValueError, match=rf"^{name} contains 3\.4e\+38, but the maximum of bfloat16 is 3\.39e\+38"):
        stored.save(tmp_path / "out", "bfloat16")
    with torch.no_grad():
        large[0, :2] = torch.tensor([-torch.inf, 65_504.0])  # already infinite: nothing is lost
    stored.save(tmp_path / "half", "float16")


def test_weights_are_identified_by_their_digest(tmp_path: Path) -> None:
    """The digest does not depend on the folder; another value, name or shape changes it."""
    stored = model()
    stored.save(tmp_path / "brain", "bfloat16")
    once = Model.from_folder(tmp_path / "brain")
    once.save(tmp_path / "again", "bfloat16")
    once.save(tmp_path / "full")
    found = {
        weights_digest(Model.from_folder(tmp_path / name).network.state_dict()) for name in ("brain", "again", "full")
    }
    assert found == {weights_digest(once.network.to(torch.bfloat16).state_dict())}
    assert weights_digest(stored.network.state_dict()) not in found
    state = {"b": torch.tensor([[1.0, 2.0]]), "a": torch.tensor(3.0)}
    wanted = hashlib.sha256(b"a []\n" + struct.pack("<f", 3) + b"b [1, 2]\n" + struct.pack("<2f", 1, 2)).hexdigest()
    assert weights_digest(state) == wanted
    others = [
        {"b": torch.tensor([[1.0, 2.5]])},
        {"b": torch.tensor([[1.0], [2.0]])},
        {"c": torch.tensor([[1.0, 2.0]])},
    ]
    assert wanted not in {weights_digest({"a": state["a"]} | other) for other in others}


def test_a_folder_created_while_saving_is_left_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def while_another_saves(folder: Path) -> None:
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "precious").write_text("precious")

    monkeypatch.setattr(store, "write_manifest", while_another_saves)
    with pytest.raises(ValueError, match="created by another process in the meantime"):
        model().save(tmp_path / "model")
    assert contents(tmp_path) == {"model/precious": b"precious"}


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


FAILURES: dict[str, tuple[object, str]] = {
    "text": (Path, "write_text"),
    "weights": (store, "write_weights"),
    "tokenizer": (HuggingFaceTokenizer, "save"),
    "manifest": (store, "write_manifest"),
    "digest": (store, "file_digest"),
    "flush": (os, "fsync"),
    "rename": (os, "rename"),
}


@pytest.mark.parametrize("where", list(FAILURES))
def test_a_full_disk_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setattr(*FAILURES[where], full_disk)
    with pytest.raises(OSError, match="No space left"):
        model().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_an_interruption_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def interrupted(folder: Path) -> None:
        raise failure("now")

    monkeypatch.setattr(store, "write_manifest", interrupted)
    with pytest.raises(failure, match="now"):
        model().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_files_are_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, os.rename

    def note_sync(handle: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path))))
        sync(handle)

    def note_rename(source: Any, target: Any) -> None:
        done.append(("rename", str(Path(target).relative_to(tmp_path))))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    model().save(tmp_path / "model")
    temporary = done[0][1].split("/")[0]
    assert temporary.startswith(".model.")
    assert set(done[: len(NAMES)]) == {("sync", f"{temporary}/{name}") for name in NAMES}
    assert done[len(NAMES) :] == [("sync", temporary), ("rename", "model"), ("sync", ".")]


CHANGED_LATER = """
import os, sys
from pathlib import Path
import torch
from regard.interop.load import load

path, file = Path(sys.argv[1]), Path(sys.argv[2])
ids = torch.tensor([[1, 2, 3, 4]])
content = file.read_bytes()
for change in ("cut", "overwritten"):
    network = load(path).network
    if change == "cut":
        os.truncate(file, 0)
    else:
        with file.open("r+b") as opened:
            opened.write(bytes(len(content)))
    with torch.inference_mode():
        print(change, float(network(ids).double().square().sum()))
    file.write_bytes(content)
with torch.inference_mode():
    print("unchanged", float(load(path).network(ids).double().square().sum()))
"""


def outputs(path: Path, file: Path) -> dict[str, str]:
    """Return what a separate process computes with a model whose file changes after it was loaded."""
    command = [sys.executable, "-c", CHANGED_LATER, str(path), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2_000:])  # -7: SIGBUS
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["regard", "huggingface", "gguf"])
def test_changing_a_file_after_loading_does_not_affect_the_model(tmp_path: Path, kind: str) -> None:
    """When the file was memory-mapped, truncating it killed the process and overwriting it changed the weights."""
    torch.manual_seed(0)
    path = tmp_path / "model"
    file = path / "model.safetensors"
    if kind == "regard":
        Model(build(small(kind="decoder"))).save(path)
    elif kind == "huggingface":
        transformers = pytest.importorskip("transformers")
        config = transformers.GPT2Config(
            vocab_size=31, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
        transformers.GPT2LMHeadModel(config).save_pretrained(path)
    else:
        pytest.importorskip("gguf")
        from tests.support.gguf_files import random_llama, write_gguf

        file = path = write_gguf(tmp_path / "model.gguf", random_llama())
    found = outputs(path, file)
    assert found["cut"] == found["overwritten"] == found["unchanged"]


def test_the_verified_bytes_are_the_ones_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes after it was verified is detected."""
    path, whole = folder / "model.safetensors", store.check_manifest

    def then_changed(*arguments: Any) -> Any:
        found = whole(*arguments)
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        return found

    monkeypatch.setattr(store, "check_manifest", then_changed)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: its SHA-256"):
        Model.from_folder(folder)


def test_a_file_truncated_while_it_is_read_is_an_error(folder: Path) -> None:
    weights = open_weights(folder)
    os.truncate(folder / "model.safetensors", 2_000)
    last = max(weights.entries, key=lambda name: weights.entries[name].offset)
    with pytest.raises(ValueError, match="truncated"):
        weights.read(last)
