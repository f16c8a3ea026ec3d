# AWS. The account and region are the AWS SDK's own; AWS_ENDPOINT_URL may point to an AWS of this machine.
STAGE ?= dev

.PHONY: local-aws deploy destroy

# An AWS in memory on 127.0.0.1:4566, to try `make deploy` on.
local-aws: $(VENV)/run.stamp
	@exec $(BIN)/python -m infra.local_aws

deploy: $(VENV)/run.stamp
	@$(BIN)/python -m infra.deploy deploy $(STAGE) $(DEPLOY_FLAGS)

destroy: $(VENV)/run.stamp
	@$(BIN)/python -m infra.deploy destroy $(STAGE) $(DEPLOY_FLAGS)

.PHONY: front-door

# CloudFront in front of a deployed stage, which takes files of 64 MiB: docs/aws.md.
front-door: $(VENV)/run.stamp
	@$(BIN)/python -m infra.front_door deploy $(STAGE)

.PHONY: verify-aws cost

# What only AWS can show, on a deployed stage: make verify-aws URL=https://... with CASCADE_TOKEN set.
verify-aws: $(VENV)/run.stamp
	@$(BIN)/python -m infra.verify_aws $(or $(URL),$(error set URL to the CASCADE_URL of a stage))

cost: $(VENV)/run.stamp
	@$(BIN)/python -m infra.cost
