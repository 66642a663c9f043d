"""Does a placed program run where its plan says, and compute the same?"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_models.cluster_files import CLIENT_JOB
from placer.application.devices.device_mapping import DeviceMapping, own_mapping, process_mapping
from placer.application.placing.placed_function import PlacedFunction
from placer.application.running.cluster_tasks import (
    join_as_client,
    read_addresses,
    require_tasks,
)
from placer.application.running.generated_inputs import Given, guesses, input_values, made_up_texts
from placer.application.running.program_runs import RunOptions
from placer.application.verifying.judgement import judge
from placer.application.verifying.live_verification import verify_live
from placer.application.verifying.memory_trial import rehearse_file
from placer.application.verifying.model_files import ModelFile
from placer.application.verifying.verification_process import (
    run_in_child,
    with_note,
    with_seed_note,
)
from placer.application.verifying.verification_result import Verification
from placer.errors import ModelError, UsageError, VerificationError
from placer.extraction.extraction import ProgramChoice, choice_of, of_plan, require_choice
from placer.extraction.files.model_paths import require_own_paths
from placer.extraction.graph_defs.protobufs import live_graph_def
from placer.extraction.process.local_models import LocalModel, local_model
from placer.extraction.reading.bare_graphs import is_graph, is_graph_def
from placer.graph.program_source import Bindings
from placer.plan.plan import Plan
from placer.processes import LONG_SECONDS
from placer.simulation.building import build_libraries

_FLAT = (
    "tf.saved_model.load lacks a type that the model's objects have, which another package "
    "registers: the graph of the signature was run in a session, as TensorFlow Serving does"
)


def verify(
    source: Any,
    plan: Plan | None = None,
    inputs: Given = None,
    *,
    on_hardware: bool = False,
    strict: bool = False,
    optimised: bool = False,
    time_limit_seconds: float = LONG_SECONDS,
    seed: int = 0,
    cluster: Any = None,
    allow_unsafe: bool = False,
    follow_links: bool = False,
    memory: bool = False,
    **choice: Any,
) -> Verification:
    """One run of ``source``, compared with ``plan`` and with the unplaced program.

    ``source`` is the path of a model, a GraphDef, a ``tf.Graph``, what :func:`placer.apply` gave,
    or a ``tf.function``, ConcreteFunction or Keras model.  If it carries no placement the plan is
    applied for this run; without a plan, what ran is compared with the device strings in the graph.
    ``inputs`` are arrays by input name, or in order, made up where missing (``seed``), of the
    plan's batch size.  A program out of a file may only compute and read what is in its folder,
    unless ``allow_unsafe``; links that lead out of that are refused unless ``follow_links``.  Where
    the devices are absent the run is a rehearsal on logical CPU devices, unless ``on_hardware``.
    ``strict`` switches TensorFlow's soft placement off; ``optimised`` leaves its graph optimisation
    on.  ``cluster`` (a ``cluster.toml`` with ``[[task]]`` tables, or addresses by job) runs the
    placed program on the servers there.  ``memory`` also loads the placed program and runs ten
    steps on simulated GPUs limited to the plan's caps; of a live program its flat graph.
    ``choice`` are ``tag_set``, ``signature`` and ``outputs``.  Variables keep their values.

    Raises :class:`UsageError` for a plan of another model, with ``memory`` where GPUs cannot be
    simulated (it says what is missing) and, with ``on_hardware``, for absent devices;
    :class:`ModelError` if the model does not even run unplaced, or does what it may not;
    :class:`VerificationError` if it runs unplaced but not placed, or, ``strict``, if an op moved.
    """
    require_choice(choice, verify)
    options = RunOptions(
        on_hardware=on_hardware,
        strict=strict,
        optimised=optimised,
        time_limit_seconds=time_limit_seconds,
        seed=seed,
        cluster=None if cluster is None else read_addresses(cluster),
        memory=memory,
    )
    _check(options, source.plan if plan is None and isinstance(source, PlacedFunction) else plan)
    chosen = choice_of({} if plan is None else plan.model, **choice)
    if isinstance(source, str | os.PathLike):
        splits = None if plan is None else plan.model.get("splits")
        access: Any = {"allow_unsafe": allow_unsafe, "follow_links": follow_links, "splits": splits}
        with of_plan(None if plan is None else plan.model), local_model(source, **access) as model:
            limits = None if allow_unsafe else model.folder
            return _verify_model(model, plan, chosen, inputs, options, limits)
    if (graph_def := _as_graph_def(source)) is None:
        return verify_live(source, plan, inputs, options, chosen["outputs"])
    with tempfile.TemporaryDirectory(prefix="placer-graph-") as folder:
        path = Path(folder) / "graph.pb"
        path.write_bytes(graph_def.SerializeToString())
        return _verify_file(ModelFile(path, plan, chosen), inputs, options)


def _verify_model(
    model: LocalModel,
    plan: Plan | None,
    chosen: ProgramChoice,
    inputs: Given,
    options: RunOptions,
    folder: str | None,
) -> Verification:
    """As :func:`verify`, of a model on this machine that may read what is in ``folder`` only."""
    unsplit = None if model.unsplit is None else ModelFile(model.unsplit, None, chosen)
    file = ModelFile(model.path, plan, chosen)
    if folder is not None:
        require_own_paths(file.written, model.path)
    return _verify_file(file, inputs, options, unsplit, folder)


def _check(options: RunOptions, plan: Plan | None) -> None:
    """Raises :class:`UsageError` where what is asked for, also of a ``plan``, is not to be had."""
    if options.cluster is not None:
        require_tasks(options.cluster)
    if not options.memory:
        return
    if plan is None:
        raise UsageError(
            "--memory compares the run with the memory limits of a plan: give the plan too"
        )
    if options.on_hardware:
        raise UsageError(
            "--memory runs on simulated GPUs, which --on-hardware forbids: leave out one of them"
        )
    build_libraries()


def _as_graph_def(source: Any) -> Any | None:
    """The GraphDef of a GraphDef or plain ``tf.Graph``; ``None`` for anything else."""
    if is_graph_def(source):
        return source
    return live_graph_def(source) if is_graph(source) else None


@contextmanager
def _mapped(
    wanted: Iterable[str], options: RunOptions, *, in_session: bool
) -> Iterator[tuple[DeviceMapping, RunOptions]]:
    """The devices on which the placed program runs, and the options with the address under which
    tasks of a cluster reach it; in a session there it has a name of its own.

    Raises :class:`ClusterError` naming the tasks that do not answer once a run has failed."""
    if options.cluster is None:
        yield process_mapping(wanted, on_hardware=options.on_hardware), options
        return
    try:
        if not in_session:
            yield own_mapping(wanted), options
            return
        with closing(join_as_client(options.cluster)) as client:
            cluster = {**options.cluster, CLIENT_JOB: {0: client.address}}
            yield own_mapping(wanted, host=client.device), replace(options, cluster=cluster)
    except VerificationError:
        require_tasks(options.cluster)
        raise


def _verify_file(
    model: ModelFile,
    inputs: Given,
    options: RunOptions,
    unsplit: ModelFile | None = None,
    folder: str | None = None,
) -> Verification:
    """Both programs written to files, run in a child process and compared; the unplaced one is that
    of ``unsplit``, if tables of it were split.  With the ``folder`` of the model's file it may do
    nothing but compute."""
    subject = model.subject
    wanted = set(subject.requested.values()) - {""}
    bindings: Bindings = {} if model.plan is None else model.plan.bindings
    if isinstance(inputs, Mapping):
        inputs = {key: value for key, value in inputs.items() if key not in model.unread}
    values = input_values(model.program, inputs, bindings, options.seed)
    texts = made_up_texts(model.program, inputs)
    where = _mapped(wanted, options, in_session=not model.is_eager)
    with where as (mapping, options), tempfile.TemporaryDirectory(prefix="placer-models-") as name:
        copies = Path(name)
        unplaced = unsplit if unsplit is not None and unsplit.is_saved_model else model
        unplaced.write_unplaced(copies / "unplaced", mapping.reference_device)
        model.write_placed(copies / "placed", mapping)
        request = replace(
            model.request(copies, values), mapping=mapping, options=options, folder=folder
        )
        try:
            runs = run_in_child(request)
        except ModelError as error:
            # objects of types that other packages register
            if "has not been registered" in str(error) and model.is_eager:
                choice = ProgramChoice(
                    tag_set=",".join(model.program.tags),
                    signature=model.program.signature,
                    outputs=model.program.chosen_outputs or None,
                )
                flat = ModelFile(model.path, model.plan, choice, flat=True)
                return _verify_file(flat, inputs, options, folder=folder)
            advice = f"\n{texts}" if texts else ""
            if guessed := guesses(model.program, inputs, bindings):
                advice += (
                    f"\nInputs of unknown shape were made up ({guessed}): give them with "
                    "--inputs, or set them with --shape when placing"
                )
            if advice:
                raise ModelError(f"{error}{advice}") from error
            raise
    runs = with_note(with_seed_note(runs, model.seeded), texts)
    if model.flat:
        runs = with_note(runs, _FLAT)
    found = judge(subject, mapping, runs, optimised=options.optimised)
    if options.memory and model.plan is not None:
        return replace(found, memory=rehearse_file(model, values, options, folder))
    return found
