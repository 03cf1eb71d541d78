// Natural-language inference on SNLI without ELMo: the baseline of snli.jsonnet. Nothing else differs. Not run here.
// The paper (table 1) reports test accuracy 88.0. Its baseline had neither the L2 on weight matrices nor the dropout
// after the attention (from memory, not checked against the paper). For the same:
//   --overrides '{"model.regularizer.regexes.1.1.alpha": 0.0, "model.attention_dropout": 0.0}'
local elmo = import 'lib/elmo.libsonnet';

(import 'snli.jsonnet') + { model+: { text_encoder+: { elmo: elmo.part('none') } } }
