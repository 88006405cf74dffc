"""Images with objects in COCO's form, out of folders and archives, for `coco.Coco`."""

import hashlib
import json
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dawnjax.input_pipeline.datasets import images
from dawnjax.input_pipeline.datasets.coco import SPLITS
from dawnjax.input_pipeline.preparation import archives, coco_annotations, coco_writer
from dawnjax.input_pipeline.preparation.archives import Limits, Member
from dawnjax.input_pipeline.preparation.coco_annotations import Annotations
from dawnjax.input_pipeline.preparation.coco_writer import Place, Source
from dawnjax.input_pipeline.preparation.request import DONE, Flag, FlagError, Preparation, Request
from dawnjax.input_pipeline.reading.dataset import DataError, Split, overlap_line
from dawnjax.input_pipeline.reading.zip_files import MOST_MEMBERS

_LIMITS = Limits(
    num_members=5 * MOST_MEMBERS,
    name_bytes=2**26,
    member_bytes=coco_annotations.MOST_BYTES,
    total_bytes=2**37,
)
_MOST_IMAGE_BYTES = 2**26
_ARCHIVES = (".zip", ".tar")

DEFAULTS: dict[Split, str] = {"train": "instances_train2017.json", "eval": "instances_val2017.json"}


def members(path: pathlib.Path) -> Iterator[Member]:
    """Files of a folder or an archive, and of archives that lie in the folder."""
    is_folder = archives.kind_of(path) == "folder"
    for member in archives.members(path, _LIMITS):
        if is_folder and member.name.lower().endswith(_ARCHIVES):
            yield from archives.members(path / member.name, _LIMITS)
        else:
            yield member


def open_source(
    path: pathlib.Path, name: str, annotated: dict[Split, Sequence[str]], *, with_masks: bool
) -> Source:
    """List a source and read its annotations; no image is read yet."""
    wanted = [file for files in annotated.values() for file in files]
    contents: dict[str, tuple[str, bytes]] = {}
    sizes: dict[str, int] = {}
    for member in members(path):
        where = f"{member.source}: {member.name}"
        if member.name in sizes:
            raise DataError(f"{where} is in {path} twice")
        sizes[member.name] = member.size
        for file in wanted:
            if f"/{member.name}".endswith(f"/{file}"):
                if file in contents:
                    raise DataError(f"{where} and {contents[file][0]} both end in {file}")
                contents[file] = where, member.read()
    absent = next((file for file in wanted if file not in contents), None)
    if absent is not None:
        there = [member for member in sizes if member.endswith(".json")][:5]
        raise DataError(f"{path}: no file {absent}; there are {', '.join(there) or 'no .json'}")
    annotations: dict[Split, Annotations] = {
        split: coco_annotations.read([contents[f] for f in files], with_masks=with_masks)
        for split, files in annotated.items()
    }
    first, second = (annotations[split] for split in SPLITS)
    if first.categories != second.categories:
        raise DataError(f"{path}: the categories to train on are not those to evaluate")
    places = places_of(path, annotations, sizes)
    listing = hashlib.sha256(json.dumps(sorted((n, sizes[n]) for n in places)).encode())
    listing.update(json.dumps([annotated, with_masks]).encode())
    for file in wanted:
        listing.update(contents[file][1])
    return Source(
        name=name,
        annotations=annotations,
        places=places,
        members=lambda: members(path),
        listing=listing.hexdigest()[:16],
    )


def places_of(
    path: pathlib.Path, annotations: dict[Split, Annotations], sizes: dict[str, int]
) -> dict[str, list[Place]]:
    """Images that each file is, by its name; every image has one."""
    by_end: dict[int, dict[str, list[str]]] = {}
    places: dict[str, list[Place]] = defaultdict(list)
    for split, part in annotations.items():
        for row, (image, where) in enumerate(zip(part.images, part.where, strict=True)):
            about = f"{where}: image {image.id} ({coco_annotations.short_name(image)})"
            parts = image.file_name.count("/") + 1
            if parts not in by_end:
                by_end[parts] = _by_end(sizes, parts)
            found = by_end[parts].get(image.file_name)
            if not found:
                raise DataError(f"{about}: its file is missing in {path}")
            if len(found) > 1:
                raise DataError(f"{about}: may be {found[0]} or {found[1]} of {path}")
            if sizes[found[0]] > _MOST_IMAGE_BYTES:
                raise DataError(f"{about}: its file has {sizes[found[0]]:,} bytes")
            places[found[0]].append((split, row))
    return dict(places)


def _by_end(names: Iterable[str], parts: int) -> dict[str, list[str]]:
    """Names by their last parts; a file of the same name can be in each of many folders."""
    ends: dict[str, list[str]] = defaultdict(list)
    for name in names:
        ends["/".join(name.split("/")[-parts:])].append(name)
    return ends


def _prepare(request: Request) -> str:
    source, flags = request.required_source(), request.flags
    name = flags["name"] or "coco2017"
    wrong = images.reason_against(name)
    if wrong:
        raise FlagError(f"--name={name} {wrong}")
    masks = flags["masks"] or "true"
    if masks not in ("true", "false"):
        raise FlagError(f"--masks={masks} must be true or false")
    annotated: dict[Split, Sequence[str]] = {
        split: _names(f"{split}_annotations", flags[f"{split}_annotations"] or DEFAULTS[split])
        for split in SPLITS
    }
    opened = open_source(source, name, annotated, with_masks=masks == "true")
    out = request.out_for(name)
    written = coco_writer.write(
        out, opened, overwrite=request.overwrite, progress=request.progress.add
    )
    manifest, outcome = written
    seconds = request.progress.seconds
    note = overlap_line(manifest.facts.overlap, "\nnote: ")
    return f"{out}: {DONE[outcome]} in {seconds:.1f} s: {manifest.facts.summary()}{note}"


def _names(flag: str, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise FlagError(f"--{flag}={value} must name one file or more, each once")
    return names


PREPARATION = Preparation(
    name="coco",
    usage=(
        "--from=FOLDER [--masks=false] [--out=DIR] [--overwrite]",
        "--name=NAME --from=PATH --train_annotations=FILE[,FILE]\n--eval_annotations=FILE "
        "[--masks=false] [--out=DIR] [--overwrite]",
    ),
    takes="""--from is COCO 2017 as published (train2017.zip, val2017.zip and
annotations_trainval2017.zip in one folder, packed or not), or a folder, .tar or .zip with other
images and annotations in COCO's form. Images stay as they are; polygons become run lengths.
""",
    flags=(
        Flag("name", "What the images shall be called."),
        Flag("train_annotations", f"Files to train on; {DEFAULTS['train']} without."),
        Flag("eval_annotations", f"Files to evaluate; {DEFAULTS['eval']} without."),
        Flag("masks", "true keeps the objects' masks, and false the boxes alone."),
    ),
    run=_prepare,
)
