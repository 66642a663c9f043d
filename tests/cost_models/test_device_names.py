import pytest

from cost_models.device_names import DeviceName, canonical, full_name, matches, merge, parse


@pytest.mark.parametrize(
    "spelling",
    [
        0,
        "0",
        "GPU:0",
        "gpu:0",
        "GPU",
        "/gpu:0",
        "/GPU:0",
        "device:GPU:0",
        "/device:GPU:0",
        "/device:gpu:0",
        "/job:localhost/replica:0/task:0/device:GPU:0",
        "/job:localhost/replica:0/task:0/gpu:0",
    ],
)
def test_every_spelling_of_one_device_is_one_name(spelling):
    """Numbers, short, legacy and full names of GPU:0 all become the name that plans write."""
    assert canonical(spelling) == "GPU:0"
    assert full_name(spelling) == "/job:localhost/replica:0/task:0/device:GPU:0"


def test_cpu_without_a_number_is_the_host():
    """A CPU named without its number is CPU:0."""
    assert canonical("cpu") == "CPU:0"


@pytest.mark.parametrize(
    ("name", "short", "full"),
    [
        (
            "/job:worker/task:1/device:GPU:2",
            "/job:worker/task:1/device:GPU:2",
            "/job:worker/replica:0/task:1/device:GPU:2",
        ),
        (
            "/job:ps/cpu:0",
            "/job:ps/task:0/device:CPU:0",
            "/job:ps/replica:0/task:0/device:CPU:0",
        ),
        (
            "/job:w/replica:2/task:0/device:TPU:7",
            "/job:w/replica:2/task:0/device:TPU:7",
            "/job:w/replica:2/task:0/device:TPU:7",
        ),
        ("TPU_SYSTEM:0", "TPU_SYSTEM:0", "/job:localhost/replica:0/task:0/device:TPU_SYSTEM:0"),
    ],
)
def test_cluster_names_keep_their_job_and_task(name, short, full):
    """A name with a job keeps job and task; canonical and full names read back as themselves."""
    assert canonical(name) == short
    assert full_name(name) == full
    assert full_name(short) == full
    assert canonical(full) == short


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("", DeviceName()),
        ("/job:worker", DeviceName(job="worker")),
        ("/device:GPU:*", DeviceName(type="GPU")),
        ("/job:*/replica:*/task:3/device:*", DeviceName(task=3)),
        ("/job:worker/task:1/cpu:0", DeviceName(job="worker", task=1, type="CPU", index=0)),
    ],
)
def test_partial_names_leave_parts_open(name, parts):
    """Parts that are absent or a star stay None."""
    assert parse(name) == parts


@pytest.mark.parametrize(
    "nonsense",
    [
        "banana",
        "GPU:x",
        "GPU:-1",
        "/device",
        "/gpu:0:1",
        "/job:",
        "/foo:1",
        "GPU:0,GPU:1",
        -1,
        "//",
    ],
)
def test_nonsense_is_refused(nonsense):
    """What is not a device name raises and quotes the text."""
    with pytest.raises(ValueError, match=r"not a device name"):
        parse(nonsense)


@pytest.mark.parametrize("partial", ["", "/job:worker", "GPU:*", "/device:GPU:*"])
def test_a_name_open_in_type_or_number_is_no_single_device(partial):
    """A wildcard cannot become the name of one device."""
    with pytest.raises(ValueError, match=r"does not name one device"):
        canonical(partial)


@pytest.mark.parametrize(
    ("partial", "full", "expected"),
    [
        ("", "GPU:1", True),
        ("/device:GPU:*", "GPU:1", True),
        ("/device:GPU:*", "CPU:0", False),
        ("/cpu:0", "CPU:0", True),
        ("/cpu:0", "CPU:1", False),
        ("GPU", "GPU:3", True),
        ("/job:worker", "GPU:0", False),
        ("/job:localhost", "GPU:0", True),
        ("/job:worker", "/job:worker/task:1/device:GPU:0", True),
        ("/task:0", "/job:worker/task:1/device:GPU:0", False),
        ("/device:TPU_REPLICATED_CORE:0", "TPU:0", False),
    ],
)
def test_a_request_is_fulfilled_part_by_part(partial, full, expected):
    """A device fulfils a request if it agrees in every part that the request sets."""
    assert matches(partial, full) is expected


def test_merging_replaces_only_what_is_set():
    """Inner device strings override outer ones part by part, as nested tf.device scopes do."""
    assert str(merge("/job:worker/device:GPU:1", "/task:2")) == "/job:worker/task:2/device:GPU:1"
    assert str(merge("/device:GPU:1", "/cpu:0")) == "/device:CPU:0"
    assert str(merge("/device:GPU:1", "/device:GPU:*")) == "/device:GPU:1"
    assert str(merge("/device:GPU:1", "/device:CPU:*")) == "/device:CPU:*"
