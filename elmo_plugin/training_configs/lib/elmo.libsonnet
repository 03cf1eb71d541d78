// ELMo in a task's `text_encoder`: which biLM, where it is added, and how its mix weights are regularized.
{
  // The paper's biLM, as AI2 publishes it (374 MB, downloaded once).
  original:: self.named('original'),

  // One that comes with this package, or the folder of your own: with options.json and weights.hdf5, or of
  // ELMoForManyLangs.
  named(name):: { options_file: name },

  // The `elmo` part of a text encoder. `placement`: input, output, both or none. `none` makes the
  // baseline: the same model without ELMo, and the biLM is not loaded. `dropout`: of ELMo alone, at both places
  // or as { input: ..., output: ... }; 0 where the next layer drops what it reads. Each sentence starts from
  // zeros; with `stateful: true` states are carried from batch to batch, as by bilm-tf and AllenNLP.
  part(placement, bilm=self.original, dropout=0.5):: bilm {
    placement: placement,
    dropout: dropout,
  },

  // For the reader's token_indexers, under the name that the part above expects.
  indexers:: { elmo: { type: 'elmo_character_ids' } },

  // An experiment whose only input is ELMo, so that its archive is small.
  as_only_input(experiment):: experiment {
    local reader = { token_indexers: $.indexers },
    dataset_reader+: reader,
    [if 'validation_dataset_reader' in experiment then 'validation_dataset_reader']+: reader,
    // No characters but ELMo's.
    vocabulary: {},
    model+: { text_encoder+: { text_field_embedder: null } },
  },

  // lambda * ||w||^2 on the mix weights before the softmax (paper, section 3.3); gamma stays free.
  regularizer(lambda):: { regexes: [['scalar_parameters', { type: 'l2', alpha: lambda }]] },
}
