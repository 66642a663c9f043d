"""The NodeDef toolbox: op definitions, names, types and programs as protobufs."""
