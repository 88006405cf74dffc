"""JPEG files that are whole, cut, turned or longer than their image."""

import concurrent.futures
import struct

import cv2
import numpy as np
import pytest

from dawnjax.input_pipeline.reading.dataset import DataError
from dawnjax.input_pipeline.reading.image_files import decode_image, decode_square

HEIGHT, WIDTH = 40, 64
END = b"\xff\xd9"


def photograph(*options: int) -> bytes:
    """A noisy photograph, bright at its left side."""
    noise = np.random.default_rng(0).integers(0, 60, (HEIGHT, WIDTH, 3), np.uint8)
    noise[:, : WIDTH // 2] += 180
    encoded = cv2.imencode(".jpg", noise, options)[1].tobytes()
    assert encoded.endswith(END)
    return encoded


def with_exif(content: bytes, orientation: int) -> bytes:
    """With an orientation mark, tag 0x0112 of TIFF."""
    tiff = b"MM\0\x2a" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    segment = b"Exif\0\0" + tiff
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + content[2:]


BASELINE = photograph()
PROGRESSIVE = photograph(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)


# The decoder warns of extraneous bytes before the end mark; cameras write such files.
@pytest.mark.parametrize("end", [END + bytes(5000), END + b"\xff\xd8\xff\xe0film", bytes(3) + END])
def test_bytes_that_the_image_does_not_need_are_left_alone(end):
    whole = decode_square(BASELINE, 16)
    np.testing.assert_array_equal(decode_square(BASELINE.removesuffix(END) + end, 16), whole)


@pytest.mark.parametrize("content", [BASELINE, PROGRESSIVE], ids=["baseline", "progressive"])
@pytest.mark.parametrize("part", [0.4, 0.7, 0.95])
def test_a_cut_scan_is_refused_with_and_without_an_end_mark(content, part, capfd):
    cut = content[: int(len(content) * part)]
    for damaged in (cut, cut + END):
        with pytest.raises(DataError, match=r"cut short or damaged \(the decoder: "):
            decode_square(damaged, 16)
    assert capfd.readouterr().err == ""  # no line without the name of a file


def test_a_cut_scan_does_not_tell_on_whole_ones_beside_it():
    cut = BASELINE[: len(BASELINE) // 2] + END
    given = [BASELINE, BASELINE, cut, PROGRESSIVE] * 20

    def outcome(content: bytes) -> str:
        try:
            decode_square(content, 16)
        except DataError:
            return "refused"
        return "read"

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(outcome, given)) == ["read", "read", "refused", "read"] * 20


@pytest.mark.parametrize(
    ("orientation", "bright"),
    [(1, "left"), (2, "right"), (3, "right"), (6, "top"), (8, "bottom")],
)
def test_an_orientation_mark_turns_the_image(orientation, bright):
    image = decode_square(with_exif(BASELINE, orientation), 16).astype(int)
    halves = {
        "left": image[:, :8],
        "right": image[:, 8:],
        "top": image[:8],
        "bottom": image[8:],
    }
    means = {name: half.mean() for name, half in halves.items()}
    assert max(means, key=lambda name: means[name]) == bright


def test_a_turned_image_has_the_size_that_is_asked_for():
    turned = with_exif(BASELINE, 6)
    assert decode_image(turned, WIDTH, HEIGHT).shape == (WIDTH, HEIGHT, 3)
    with pytest.raises(DataError, match=f"is {HEIGHT}x{WIDTH} pixels"):
        decode_image(turned, HEIGHT, WIDTH)
