"""ImageNet's path from photographs to batches."""

import dataclasses
import functools
import io
import pathlib

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packed import prepare
from photographs_made import photograph
from quick_compilation import FUSIONS_OF_A_USER

from dawnjax.__main__ import main
from dawnjax.input_pipeline.augmentation import image_augmentation
from dawnjax.input_pipeline.augmentation.image_augmentation import ImageAugmentation
from dawnjax.input_pipeline.datasets.imagenet import ImageNet
from dawnjax.input_pipeline.reading import image_set, photographs
from dawnjax.input_pipeline.reading.batches import ExampleOrder, host_batch
from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.image_files import decode_part, decode_square
from dawnjax.input_pipeline.reading.rows_on_demand import RowsOnDemand


def decoded(content: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image[:, :, ::-1]


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> pathlib.Path:
    """Seven training photographs and three for evaluation, of two classes."""
    root = tmp_path / "photographs"
    for index in range(10):
        split, label = ("train", index % 2) if index < 7 else ("val", index % 2)
        folder = root / split / f"n0000000{label}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"image_{index}.JPEG").write_bytes(photograph(270 + 10 * index, 400, index))
    return root


def test_grey_misnamed_and_small_photographs_are_converted():
    grey = decode_square(photograph(280, 300, grey=True), 256)
    assert grey.shape == (256, 256, 3) and (grey[..., 0] == grey[..., 2]).all()
    # A PNG whatever its name says; a small one is enlarged.
    small = decode_square(photograph(100, 120, kind=".png"), 256)
    assert small.shape == (256, 256, 3)
    np.testing.assert_array_equal(
        decode_square(photograph(256, 256, kind=".png"), 256),
        decoded(photograph(256, 256, kind=".png")),
    )


@pytest.mark.parametrize(
    ("height", "kind"),
    [(256, ".jpg"), (511, ".png"), (1024, ".png"), (1024, ".jpg"), (2050, ".jpg")],
)
def test_squares_are_averages_over_areas_whatever_the_size(height, kind):
    """From 1,024 pixels on a JPEG is decoded at half the size or less."""
    content = photograph(height, height + 30, seed=height, kind=kind)
    image = decoded(content)[:, 15 : 15 + height]
    wanted = cv2.resize(image, (256, 256), interpolation=cv2.INTER_AREA)
    difference = decode_square(content, 256).astype(int) - wanted
    # A shift by a pixel of the result would be 2 to 4 levels in the mean in these images.
    assert abs(difference).mean() < 0.5 and abs(difference.mean()) < 0.25


def test_a_cmyk_photograph_is_converted():
    image_module = pytest.importorskip("PIL.Image", reason="Pillow, which writes CMYK, is absent")
    colour = np.zeros((300, 300, 3), np.uint8)
    colour[:, :150] = (255, 0, 0)
    colour[:, 150:] = (0, 0, 255)
    file = io.BytesIO()
    image_module.fromarray(colour).convert("CMYK").save(file, "JPEG")
    square = decode_square(file.getvalue(), 256).astype(int)
    # Conversions differ in the colours' strength, not in which colour is where.
    assert (square[:, :120, 0] > square[:, :120, 2] + 100).all()
    assert (square[:, 136:, 2] > square[:, 136:, 0] + 100).all()


def test_rows_on_demand_are_the_rows_of_an_array():
    made: list[int] = []

    def row(index: int) -> np.ndarray:
        made.append(index)
        return np.full((2, 3), index, np.int32)

    rows = RowsOnDemand(10, (2, 3), "int32", row)
    whole = np.broadcast_to(np.arange(10, dtype=np.int32)[:, None, None], (10, 2, 3))
    assert (rows.shape, rows.dtype, len(rows), made) == ((10, 2, 3), np.int32, 10, [])
    asked = np.array([[7, 2, 7], [0, 2, 9]])
    np.testing.assert_array_equal(rows[asked], whole[asked])
    assert sorted(made) == [0, 2, 7, 9]  # each once
    np.testing.assert_array_equal(rows[2:9:3], whole[2:9:3])
    np.testing.assert_array_equal(np.asarray(rows), whole)
    assert rows[np.array([], int)].shape == (0, 2, 3)
    with pytest.raises(IndexError):
        rows[np.array([3, 10])]


@pytest.fixture
def whole(folders, tmp_path) -> pathlib.Path:
    """The photographs, prepared whole."""
    pytest.importorskip("array_record")
    pytest.importorskip("tensorflow_datasets")
    # One is grey, and one a PNG of another size that is named as the others.
    (folders / "train/n00000000/image_2.JPEG").write_bytes(photograph(300, 400, grey=True))
    (folders / "train/n00000001/image_5.JPEG").write_bytes(photograph(100, 120, kind=".png"))
    assert prepare("imagenet", folders, tmp_path / "whole", "--form=photographs") == 0
    return tmp_path / "whole"


def test_whole_photographs_give_the_batches_of_squares(folders, whole, tmp_path):
    out = tmp_path / "out"
    assert prepare("imagenet", folders, out) == 0
    direct, ready = ImageNet(data_dir=str(whole)), ImageNet(data_dir=str(out))
    fields = ("num_train_examples", "num_eval_examples", "num_classes", "image_shape", "mean")
    for name in fields:
        assert getattr(direct.spec(), name) == getattr(ready.spec(), name)
    assert direct.classes() == ready.classes() == ("n00000000", "n00000001")
    np.testing.assert_array_equal(ready.load("train")["label"], [0, 0, 0, 0, 1, 1, 1])
    declaration = ready.spec().declaration
    assert declaration is not None and not declaration.benchmark
    assert declaration.name == "7 + 3 images in 2 classes, not ImageNet"
    with pytest.raises(ValueError, match="was prepared with 256; give --data.image_side=256"):
        dataclasses.replace(ready, image_side=330).spec()
    order = ExampleOrder(seed=5, num_train_examples=7)
    steps = order.steps(2, 3, 4)  # in the middle, as a resumed run would begin
    batches = [host_batch(data.load("train"), steps, slice(0, 4)) for data in (direct, ready)]
    # Two hosts, each of which decodes its own rows.
    halves = [host_batch(direct.load("train"), steps, slice(*rows)) for rows in ((0, 2), (2, 4))]
    for name in ("image", "label", "index", "epoch"):
        np.testing.assert_array_equal(batches[0][name], batches[1][name])
        np.testing.assert_array_equal(
            np.concatenate([half[name] for half in halves], axis=1), batches[1][name]
        )
    evaluated = np.asarray(direct.load("eval")["image"])
    np.testing.assert_array_equal(evaluated, ready.load("eval")["image"])


def test_whole_photographs_are_cut_at_random(folders, whole, tmp_path, capsys):
    """By seed, epoch and position alone, whichever host cuts them."""
    data = ImageNet(data_dir=str(whole), form="photographs", image_side=64)
    spec, train = data.spec(), data.load("train")
    assert spec.image_shape == (64, 64, 3) and spec.is_drawn
    order = ExampleOrder(seed=5, num_train_examples=7)
    steps = order.steps(0, 7, 4)  # four epochs
    batch = host_batch(train, steps, slice(0, 4))
    halves = [host_batch(data.load("train"), steps, slice(*rows)) for rows in ((0, 2), (2, 4))]
    np.testing.assert_array_equal(
        np.concatenate([half["image"] for half in halves], axis=1), batch["image"]
    )
    seen = {}
    for index, epoch, image in zip(
        batch["index"].ravel(), batch["epoch"].ravel(), batch["image"].reshape(28, -1), strict=True
    ):
        seen.setdefault(int(index), {})[int(epoch)] = image.tobytes()
    assert all(len(set(epochs.values())) == len(epochs) == 4 for epochs in seen.values())
    other = ExampleOrder(seed=6, num_train_examples=7).steps(0, 7, 4)
    images = {image.tobytes() for image in host_batch(train, other, slice(0, 4))["image"][0]}
    assert not images & {image for epochs in seen.values() for image in epochs.values()}
    with pytest.raises(DataError, match="stay on the host: give --data_placement=host"):
        np.asarray(train["image"])
    # To evaluate, the middle 7/8: of 350 x 400 pixels, 306 to 307 resized to 64.
    evaluated = np.asarray(data.load("eval")["image"])[0].astype(int)
    first = decoded((folders / "val/n00000000/image_8.JPEG").read_bytes())
    middle = cv2.resize(first[22:328, 47:353], (64, 64), interpolation=cv2.INTER_AREA)
    assert abs(evaluated - middle).mean() < 2
    assert prepare("imagenet", folders, tmp_path / "out") == 0
    with pytest.raises(DataError, match="has squares, but data.form=photographs needs whole"):
        ImageNet(data_dir=str(tmp_path / "out"), form="photographs").spec()
    argv = ["train", "--experiment=imagenet_resnet50", f"--data.data_dir={whole}"]
    argv += ["--global_batch_size=4", "--batch_norm_group_size=4"]
    assert main([*argv, "--data.form=photographs"]) == 2
    assert "crop_pixels=224 must be 0: with data.form=photographs" in capsys.readouterr().err


@pytest.mark.parametrize(("height", "width"), [(300, 400), (100, 1000), (1, 5)])
def test_random_parts_have_the_published_areas_and_aspects(height, width):
    random = np.random.default_rng(0)
    parts = [photographs.random_part(height, width, random.random((10, 4))) for _ in range(4000)]
    top, left, rows, columns = np.array(parts).T
    assert (top >= 0).all() and (top + rows <= height).all() and (rows > 0).all()
    assert (left >= 0).all() and (left + columns <= width).all() and (columns > 0).all()
    if min(height, width) < 300:
        return  # most draws do not fit
    areas, aspects = rows * columns / (height * width), columns / rows
    assert 0.07 < areas.min() < 0.1 < 0.9 < areas.max() <= 1
    assert 0.73 < aspects.min() < 0.77 and 1.3 < aspects.max() < 1.36
    # Parts reach all borders, and lie on both sides of the middle alike.
    for first, size, whole in ((top, rows, height), (left, columns, width)):
        assert first.min() == 0 and (first + size).max() == whole
        assert abs((first + size / 2).mean() / whole - 0.5) < 0.01


def test_a_part_of_a_photograph_is_that_part_whatever_its_size():
    """Also of one that its own transform shrinks first, or that a mark turns."""
    for height, width in ((300, 420), (1100, 1500)):
        content = photograph(height, width, 3)
        top, left, rows, columns = height // 5, width // 4, height // 2, height // 2
        place = (top, left, rows, columns)
        found = decode_part(content, 64, lambda *_, place=place: place).astype(int)
        part = decoded(content)[top : top + rows, left : left + columns]
        wanted = cv2.resize(part, (64, 64), interpolation=cv2.INTER_AREA)
        assert abs(found - wanted).mean() < 1


def test_large_images_are_mapped_unread(folders, tmp_path):
    out = tmp_path / "out"
    prepare("imagenet", folders, out)
    prepared = image_set.read(out)
    mapped = image_set.read_split(prepared, "train", most_bytes=0)
    assert isinstance(mapped["image"], np.memmap)
    np.testing.assert_array_equal(mapped["image"], image_set.read_split(prepared, "train")["image"])


def crops(images: np.ndarray, **fields) -> np.ndarray:
    # A crop and its mirror image come of two programs, and are the same to the last bit.
    @functools.partial(jax.jit, compiler_options=FUSIONS_OF_A_USER)
    def augmented(images):
        keys = jax.random.split(jax.random.key(0), len(images))
        return image_augmentation.augment(
            ImageAugmentation(**fields),
            images,
            step_keys=keys,
            example_keys=keys,
            epochs=jnp.zeros(len(images), jnp.int32),
        )

    return np.asarray(augmented(jnp.asarray(images, jnp.float32)))


@pytest.mark.compiles
def test_crops_are_rectangles_of_the_drawn_areas_and_shapes():
    # Channel 0 is the row and channel 1 the column that a pixel comes from.
    rows, columns = np.meshgrid(np.arange(64.0), np.arange(64.0), indexing="ij")
    images = np.broadcast_to(np.stack([rows, columns], -1), (1000, 64, 64, 2))
    cropped = crops(images, crop_pixels=8, crop_min_area=0.25, crop_max_aspect=1.5)
    # From the third to the sixth of eight pixels is three eighths of a side; borders are apart.
    heights = (cropped[:, 5, 4, 0] - cropped[:, 2, 4, 0]) * 8 / 3
    widths = (cropped[:, 4, 5, 1] - cropped[:, 4, 2, 1]) * 8 / 3
    areas, aspects = heights * widths / 64**2, widths / heights
    assert 0.245 < areas.min() < 0.27 and areas.max() < 1.01
    assert abs(np.quantile(areas, 0.25) - 0.4375) < 0.03  # of uniform on 0.25 to 1, 1,000 draws
    # The weights at whole pixels are not quite centred: up to a hundredth of a length.
    assert 1 / 1.52 < aspects.min() < 0.7 and 1.43 < aspects.max() < 1.52
    assert abs(np.log(aspects).mean()) < 0.02
    assert (cropped >= 0).all() and (cropped <= 63).all()
    mirrored = crops(images, crop_pixels=8, crop_min_area=0.25, crop_max_aspect=1.5, flip="random")
    is_mirrored = mirrored[:, 0, 0, 1] > mirrored[:, 0, -1, 1]
    np.testing.assert_allclose(mirrored[~is_mirrored], cropped[~is_mirrored])
    np.testing.assert_allclose(mirrored[is_mirrored], cropped[is_mirrored][:, :, ::-1])
    assert 0.45 < is_mirrored.mean() < 0.55


@pytest.mark.compiles
def test_an_evaluation_sees_the_middle():
    images = jnp.arange(2 * 6 * 8 * 1).reshape(2, 6, 8, 1)
    middle = image_augmentation.center_crop(ImageAugmentation(crop_pixels=4), images)
    np.testing.assert_array_equal(middle, images[:, 1:5, 2:6])
    assert image_augmentation.center_crop(ImageAugmentation(), images) is images
