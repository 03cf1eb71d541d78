// Named entities of two sources: the tagger elmo_ner_mini, which scripts/task_model.sh makes of this config. As
// ner_small.jsonnet, but for the data: WikiGold marks persons, locations, organizations and others (MISC),
// UniversalNER's English web text all but the last. Where it marks nothing, MISC is possible. And two things for
// small data: words that occur once count as unknown, so that names which it never saw have a vector that was trained
// (dev F1 58.3, 53.9 without), and weights are averaged over steps (60.7). One run each, with an earlier elmo_mini.
//
//   export NER_DATA=...       a folder with the folders wikigold and uner_ewt, of train.conll, dev.conll and test.conll
//   export ELMO=elmo_mini     a biLM that comes with this package, or a folder with options.json and weights.hdf5
//   allennlp train training_configs/ner_mini.jsonnet -s runs/ner_mini --include-package elmo_plugin
local elmo = import 'lib/elmo.libsonnet';
local ner = import 'lib/ner.libsonnet';

local of_both(name) = [std.extVar('NER_DATA') + '/' + source + '/' + name for source in ['wikigold', 'uner_ewt']];

ner.experiment(
  data={ train: of_both('train.conll'), dev: of_both('dev.conll'), test: of_both('test.conll') },
  // WNUT 2017 with its classes renamed, which the script measures too, has no MISC either.
  unmarked={ 'uner_ewt/*': ['MISC'], 'wnut17/*': ['MISC'] },
  elmo_part=elmo.part('input', bilm=elmo.named(std.extVar('ELMO')), dropout=0.0),
  word_vectors=null,
  rnn_sizes=[100],
  batch_size=16,
  learning_rate=0.003,
  num_epochs=15,
  patience=5,
) + {
  vocabulary: { min_count: { tokens: 2 } },
  trainer+: { moving_average: { type: 'exponential', decay: 0.997 } },
}
