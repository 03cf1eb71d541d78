// NER: biLSTM-CRF over word vectors, character convolutions and ELMo.
local data_files = import 'data.libsonnet';
local elmo = import 'elmo.libsonnet';
local words = import 'words.libsonnet';

{
  // Files of a token per line, the tag in the last column, called `train`, `dev` and `test` in a folder.
  files:: data_files.files,

  // data: train, dev and test, each a file or a list of files.
  // unmarked: classes that some files do not mark, by patterns of their paths.
  // word_vectors: a file or URL in GloVe's text format, of width word_dim; null starts them at random.
  experiment(
    data,
    elmo_part,
    word_vectors,
    word_dim=50,
    character_dim=16,
    num_character_filters=128,
    character_filter_widths=[3],
    rnn_sizes=[200, 100],
    dropout=0.5,
    unmarked={},
    batch_size=64,
    learning_rate=0.001,
    num_epochs=75,
    patience=25,
  ):: {
    dataset_reader: {
      type: 'elmo_ner',
      unmarked: unmarked,
      token_indexers: words.indexers() + words.character_indexers(character_filter_widths) + elmo.indexers,
    },

    model: {
      type: 'elmo_ner',
      text_encoder: {
        text_field_embedder: {
          token_embedders: words.embedders(word_vectors, word_dim, trainable=true)
                           + words.character_embedders(
                             character_dim, num_character_filters, character_filter_widths
                           ),
        },
        elmo: elmo_part,
        // Widths follow from the embedders and from ELMo's placement.
        encoder: {
          type: 'elmo_stack',
          encoders: [{ type: 'lstm', hidden_size: size, bidirectional: true } for size in rnn_sizes],
          dropout: dropout,
        },
        dropout: dropout,
        variational_dropout: true,
      },
      dropout: dropout,
      include_start_end_transitions: false,
      regularizer: elmo.regularizer(0.1),
    },

    trainer: {
      optimizer: { type: 'adam', lr: learning_rate },
      grad_norm: 5.0,
    },
  } + words.vocabulary(word_vectors) + data_files.experiment(data, num_epochs, patience, '+f1')
    + data_files.loaders(batch_size, ['tokens']),
}
