"""The trace file: read whole, and refused in one line where it cannot be."""

import jax
import pytest
from traces import tpu_trace

from dawnjax.profile import xplane
from dawnjax.profile.xplane import TraceError, read_planes


@pytest.mark.compiles
def test_what_jax_writes_is_read_as_jax_reads_it(tmp_path):
    text = """
    planes { id: 1 name: "/device:TPU:0"
      lines { id: 2 name: "XLA Ops" timestamp_ns: 5
        events { metadata_id: 3 offset_ps: 7 duration_ps: 11
          stats { metadata_id: 4 int64_value: -9 } stats { metadata_id: 5 ref_value: 6 } } }
      event_metadata { key: 3 value { id: 3 name: "%fusion.1" display_name: "fusion.1"
        stats { metadata_id: 4 uint64_value: 42 } } }
      stat_metadata { key: 4 value { id: 4 name: "flops" } }
      stat_metadata { key: 5 value { id: 5 name: "hlo_op" } }
      stat_metadata { key: 6 value { id: 6 name: "a text" } } }
    """
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(text))
    (plane,) = read_planes(path)
    assert plane.name == "/device:TPU:0"
    (line,) = plane.proto.lines
    assert (line.name, line.timestamp_ns) == ("XLA Ops", 5)
    (event,) = line.events
    assert (event.offset_ps, event.duration_ps) == (7, 11)
    assert plane.stats(event) == {"flops": -9, "hlo_op": "a text"}
    metadata = plane.proto.event_metadata[3]
    assert metadata.display_name == "fusion.1" and plane.stats(metadata) == {"flops": 42}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no plane"),
        (b"this is a text and no trace", "is damaged or cut off"),
        (b"\x12\x02ab", "holds no plane"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path, content, message):
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as error:
        list(read_planes(path))
    assert "\n" not in str(error.value)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(xplane, "MOST_BYTES", 64)
    with pytest.raises(TraceError, match="profile fewer steps"):
        list(read_planes(tpu_trace(tmp_path)))


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        list(read_planes(tmp_path / "absent"))
