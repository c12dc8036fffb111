"""The pipeline dialect: ordered steps with typed commands, contracts and approvals."""
