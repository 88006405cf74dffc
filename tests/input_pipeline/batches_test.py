"""The order of examples, the parts of batches, and making them ahead of time."""

import threading
import time

import numpy as np
import pytest

from dawnjax.input_pipeline.reading.batches import ExampleOrder, host_batch
from dawnjax.input_pipeline.reading.prefetch import POLL_SECONDS, Prefetch


def philox4x64(key: tuple[int, int], counter: int) -> list[int]:
    """Philox4x64-10 in plain integers, written from the paper's section 3.3 and table 2."""
    mask = 2**64 - 1
    words, (k0, k1) = [counter, 0, 0, 0], key
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        words = [
            (second >> 64) ^ words[1] ^ k0,
            second & mask,
            (first >> 64) ^ words[3] ^ k1,
            first & mask,
        ]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & mask, (k1 + 0xBB67AE8584CAA73B) & mask
    return words


def expected_permutation(seed: int, epoch: int, size: int) -> list[int]:
    """Sorts the examples by the generator's words, ties aside, in plain Python."""
    words = [w for block in range(1, size // 4 + 2) for w in philox4x64((seed, epoch), block)]
    bits = (size - 1).bit_length()
    return sorted(range(size), key=lambda example: (words[example] >> bits, example))


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (7, 3), (2**64 - 1, 12)])
def test_permutation_is_the_published_generators(seed: int, epoch: int) -> None:
    order = ExampleOrder(seed=seed, num_train_examples=101)
    assert order.steps(epoch, 1, 101).index[0].tolist() == expected_permutation(seed, epoch, 101)


def test_every_epoch_has_every_example_once_and_nothing_is_dropped() -> None:
    order = ExampleOrder(seed=1, num_train_examples=10)
    indices = order.steps(0, 5, 4)
    assert indices.index.shape == indices.epoch.shape == (5, 4)
    assert indices.index.dtype == indices.epoch.dtype == np.int32
    stream = indices.index.reshape(-1)
    assert sorted(stream[:10]) == sorted(stream[10:]) == list(range(10))
    assert stream[:10].tolist() != stream[10:].tolist()
    assert indices.epoch.reshape(-1).tolist() == [0] * 10 + [1] * 10


def test_examples_of_two_kinds_are_kept_apart_and_nothing_is_dropped() -> None:
    kinds = np.arange(23) % 4 == 1

    def order() -> ExampleOrder:
        return ExampleOrder(seed=3, num_train_examples=23, kinds=kinds)

    whole = order().steps(0, 60, 4)
    assert all(len(set(kinds[row])) == 1 for row in whole.index)
    is_second = kinds[whole.index[:, 0]]
    for count in range(1, 61):  # each kind has had its share
        assert abs(is_second[:count].sum() - count * 6 / 23) <= 0.5
    for kind, size in ((True, 6), (False, 17)):
        index, epochs = (part[is_second == kind].reshape(-1) for part in (whole.index, whole.epoch))
        np.testing.assert_array_equal(epochs, np.arange(len(epochs)) // size)
        for epoch in range(len(index) // size):
            every = np.sort(index[epochs == epoch])
            np.testing.assert_array_equal(every, np.flatnonzero(kinds == kind))
    # A batch follows from its step alone.
    again = order()
    for start, count in ((40, 5), (3, 2), (17, 1)):
        steps = again.steps(start, count, 4)
        np.testing.assert_array_equal(steps.index, whole.index[start : start + count])
        np.testing.assert_array_equal(steps.epoch, whole.epoch[start : start + count])
    with pytest.raises(ValueError, match="need one batch size"):
        again.batches(2, 1, 4)


@pytest.mark.parametrize("second", [False, True])
def test_one_kind_alone_has_the_order_of_all_examples(second: bool) -> None:
    kinds = np.full(10, second)
    plain = ExampleOrder(seed=1, num_train_examples=10).steps(0, 7, 4)
    apart = ExampleOrder(seed=1, num_train_examples=10, kinds=kinds).steps(0, 7, 4)
    np.testing.assert_array_equal(apart.index, plain.index)
    np.testing.assert_array_equal(apart.epoch, plain.epoch)


@pytest.mark.parametrize(("num_examples", "batch_size"), [(10, 4), (3, 8)])
def test_any_step_can_be_made_alone(num_examples: int, batch_size: int) -> None:
    def order() -> ExampleOrder:
        return ExampleOrder(seed=5, num_train_examples=num_examples)

    whole = order().steps(0, 12, batch_size)
    backwards = order()
    for step in reversed(range(12)):
        fresh = order().steps(step, 1, batch_size)
        again = backwards.steps(step, 1, batch_size)
        assert (fresh.index[0] == whole.index[step]).all()
        assert (again.index[0] == whole.index[step]).all()
        assert (again.epoch[0] == whole.epoch[step]).all()


def test_parts_of_all_processes_are_the_batch_of_one(tmp_path) -> None:
    num_examples, batch_size, num_processes = 50, 16, 4
    np.save(tmp_path / "image.npy", np.arange(50 * 2 * 2 * 3, dtype=np.uint8).reshape(50, 2, 2, 3))
    examples = {
        # Memory-mapped, as a dataset too large for memory would be.
        "image": np.load(tmp_path / "image.npy", mmap_mode="r"),
        "label": np.arange(50, dtype=np.int32) % 7,
    }
    per_process = batch_size // num_processes
    for call in [(0, 3), (3, 1), (4, 3)]:
        parts = []
        for process in range(num_processes):
            # Each process has an order of its own: nothing is shared but the seed.
            order = ExampleOrder(seed=9, num_train_examples=num_examples)
            rows = slice(process * per_process, (process + 1) * per_process)
            parts.append(host_batch(examples, order.steps(*call, batch_size), rows))
        joined = {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}
        whole = ExampleOrder(seed=9, num_train_examples=num_examples)
        index = whole.steps(*call, batch_size).index
        assert (joined["index"] == index).all()
        assert (joined["epoch"] == whole.steps(*call, batch_size).epoch).all()
        assert (joined["image"] == examples["image"][index]).all()
        assert (joined["label"] == index % 7).all()
        assert joined["image"].dtype == np.uint8 and joined["label"].dtype == np.int32
        assert type(parts[0]["image"]) is np.ndarray


def test_rows_may_be_scattered() -> None:
    order = ExampleOrder(seed=0, num_train_examples=8)
    indices = order.steps(0, 2, 8)
    batch = host_batch({"label": np.arange(8, dtype=np.int32)}, indices, np.array([0, 1, 4, 5]))
    assert (batch["label"] == indices.index[:, [0, 1, 4, 5]]).all()


def test_prefetch_is_bounded() -> None:
    made = []

    def items():
        for item in range(100):
            made.append(item)
            yield item

    with Prefetch(items(), depth=3) as prefetch:
        deadline = time.monotonic() + 60
        while len(made) < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        assert made == [0, 1, 2]
        assert next(prefetch) == 0


def test_prefetch_raises_the_producers_error_after_its_items() -> None:
    def items():
        yield 1
        yield 2
        raise OSError("disk gone")

    with Prefetch(items(), depth=2) as prefetch:
        assert [next(prefetch), next(prefetch)] == [1, 2]
        with pytest.raises(OSError, match="disk gone"):
            next(prefetch)
        with pytest.raises(StopIteration):
            next(prefetch)


def test_prefetch_closes_early_and_closes_its_generator() -> None:
    closed_by = []

    def items():
        try:
            item = 0
            while True:
                yield item
                item += 1
        finally:
            closed_by.append(threading.current_thread().name)

    before = set(threading.enumerate())
    prefetch = Prefetch(items(), depth=2)
    assert next(prefetch) == 0
    prefetch.close()
    assert closed_by == ["prefetch"]
    assert "prefetch" not in {thread.name for thread in set(threading.enumerate()) - before}
    with pytest.raises(StopIteration):
        next(prefetch)
    prefetch.close()


def test_a_wait_counts_from_when_the_devices_have_no_work() -> None:
    gate = threading.Event()

    def items():
        for item in range(2):
            assert gate.wait(60)
            gate.clear()
            yield item

    looks: list[float] = []

    def ends_at(look: int, opens_at: int):
        def is_busy() -> bool:
            looks.append(time.perf_counter())
            if len(looks) == opens_at:
                gate.set()
            return len(looks) < look

        return is_busy

    with Prefetch(items(), depth=1) as prefetch:
        # The item comes while the devices work: nothing waited for it.
        assert prefetch.get(ends_at(1000, opens_at=5)) == 0
        assert prefetch.wait_seconds == 0
        looks.clear()
        assert prefetch.get(ends_at(5, opens_at=5)) == 1
        # They were last seen at work at the fourth look.
        assert 0 < prefetch.wait_seconds <= time.perf_counter() - looks[3]
        assert looks[4] - looks[0] >= 3 * POLL_SECONDS
