"""The variables of a model while a plan is bound to it: each is where the plan has it, and comes
home at the end."""

from collections.abc import Mapping
from typing import Any

from placer.application.devices.device_mapping import HOST, DeviceMapping
from placer.application.placing.moved_variables import MovedVariables, copy_variable, made_snug
from placer.application.placing.placed_function import PlacedFunction, captured_variables
from placer.application.placing.replicas import Replicas
from placer.extraction.graph_defs.program import FlatProgram
from placer.extraction.reading.created_variables import created_on
from placer.extraction.reading.keras_two import optimizer_variables
from placer.extraction.reading.optimizer_slots import slot_devices
from placer.extraction.reading.training_steps import keras_variables
from placer.graph.tensor_names import op_of, slot_owners
from placer.plan.plan import Plan


class BoundVariables:
    """The variables of ``model`` as ``plan`` has them.

    ``copies`` is what runs for a variable, as ``place_function`` keeps it; ``replicas`` are the
    variables of other replicas.  They ``wait`` for the first batch if that builds the model.
    """

    def __init__(self, model: Any, plan: Plan, mapping: DeviceMapping) -> None:
        self.model, self.plan = model, plan
        self.copies: dict[Any, Any] = {}
        self.replicas = Replicas()
        self.mapping = mapping
        self.wait = False
        self._moved = MovedVariables()
        self._copied: list[tuple[Any, Any]] = []  # of handles without a variable to move
        self._optimizer: Any = None
        self._owners: Mapping[str, str] = {}  # weights by the path of their slots

    def start(self, method: Any) -> None:
        """Moves the variables that the plan names; ``method`` is the step, which may have
        ``replicas`` of some."""
        layers = self.model._flatten_layers(include_self=False)
        self.wait = not self.model.built and not any(layer.weights for layer in layers)
        if self.wait:
            return
        self._optimizer = optimizer = getattr(self.model, "optimizer", None)
        lacks_slots = not getattr(optimizer, "built", True)  # Keras 2 makes them when it trains
        homes = slot_devices(self.model) if lacks_slots else {}
        variables = keras_variables(self.model)
        self._owners = slot_owners([*homes, *(variable.path for variable in variables)])
        for variable in variables:
            device = self._planned_device(variable.path)
            if device is not None:
                self._settle(variable._value, self.mapping.stand_in(device))
        if lacks_slots:
            self._make_slots(homes)
        self._moved.drop_functions()
        self._replicate(method)

    def release(self) -> None:
        """Lets go of replicas, and of the slots of an optimizer that the model has no longer."""
        self.replicas.release()
        if self._optimizer is not None and self._optimizer is not self.model.optimizer:
            gone = optimizer_variables(self._optimizer)
            self._moved.forget(gone)
            for value in gone:
                self.copies.pop(id(value.handle), None)
        self.copies = {key: copy for key, copy in self.copies.items() if isinstance(key, int)}

    def add_copies(self, placed: PlacedFunction, known: set[Any]) -> None:
        """Remembers the copies that ``placed`` made of variables that were not ``known``."""
        for moved in placed.moved:
            if moved.replica:
                if (id(moved.original.handle), moved.copy.device) not in known:
                    self.replicas.add(moved.original, moved.copy)
            elif id(moved.original.handle) not in known and moved.copy is not moved.original:
                self._copied.append((moved.original, moved.copy))

    def _planned_device(self, path: str) -> str | None:
        """The device of a variable by its path; a slot that the plan does not know is beside its
        weight."""
        known = self.plan.variables
        return known.get(path) or known.get(self._owners.get(path, ""))

    def _make_slots(self, homes: Mapping[str, str]) -> None:
        """Builds the optimizer, each slot where the plan has it; one that it does not know, and
        that is of no weight, is at home, where Keras makes it."""
        planned = {
            name: self.mapping.stand_in(device)
            for name in homes
            if (device := self._planned_device(name)) is not None
        }
        optimizer = self.model.optimizer
        with created_on(lambda name: planned.get(name, homes.get(name)), made=made_snug):
            optimizer.build(self.model.trainable_variables)
        for slot in optimizer.variables:
            if slot.path in homes:
                self.copies[id(slot._value.handle)] = slot._value
                self._moved.expect_home(slot._value, homes[slot.path])

    def _replicate(self, method: Any) -> None:
        """Gives the variables of other replicas the values of the model's, on their devices."""
        for variable, replica in getattr(method, "replicas", ()):
            device = self.plan.variables.get(op_of(replica.name), HOST)
            copy = copy_variable(variable._value, self.mapping.stand_in(device))
            self.copies[id(replica.handle)] = copy
            self.replicas.add(variable._value, copy)

    def end(self) -> None:
        """Brings every variable home, with its value."""
        self.replicas.release()
        for original, copy in self._copied:
            original.assign(copy)
        self._moved.bring_home()

    def settle_captured(
        self, program: FlatProgram, function: Any, placement: Mapping[str, str]
    ) -> bool:
        """Moves the variables that ``function`` captures and that are not Keras's; whether there
        were any, so that it has to be traced again."""
        owned = {id(variable.handle): variable for variable in function.graph.variables}
        found = False
        for variable in program.variables:
            own = owned.get(id(program.captures.get(variable.handle)))
            if own is not None and id(own.handle) not in self.copies:
                device = self.mapping.stand_in(placement[variable.handle])
                found = found or own.device != device
                self._settle(own, device)
        if found:
            self._moved.drop_functions()
        return found

    def held_devices(self, program: FlatProgram, function: Any) -> dict[str, str]:
        """Where the variables are that ``function`` captures, in the plan's names."""
        by_handle = {id(v.handle): v for v in captured_variables(program, function)}
        in_place = {id(copy.handle) for copy in self.copies.values()}
        held, replicas = {}, program.copies
        for variable in program.variables:
            found = by_handle.get(id(program.captures.get(variable.handle)))
            if variable.handle in replicas:
                held[variable.handle] = self.plan.variables.get(variable.name, HOST)
            elif found is not None and id(found.handle) in in_place:
                held[variable.handle] = self.mapping.planned(found.device)
            else:
                held[variable.handle] = self.plan.variables.get(variable.name, HOST)
        return held

    def _settle(self, variable: Any, device: str) -> None:
        """Has ``variable`` on ``device``, unless it was settled before."""
        if id(variable.handle) not in self.copies:
            if variable.device != device:
                self._moved.move(variable, device)
            self.copies[id(variable.handle)] = variable
